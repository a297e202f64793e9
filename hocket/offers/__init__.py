"""Offers of machines to rent: the time and the cost of a job on each, by numbers of nodes."""

from hocket.offers.compare_offers import rent
from hocket.offers.offer import Offer
from hocket.offers.offers_file import load_offers
from hocket.offers.rental import Rental, RentalRow
from hocket.offers.training_job import TrainingJob

__all__ = ["Offer", "Rental", "RentalRow", "TrainingJob", "load_offers", "rent"]
